// Package file keeps the files that callers upload for models, by tenant. The content of a file is an object of the
// bus; its description is a document in the store.
//
// A file is deleted when it has been without references for [Keep], or when a caller deletes it. A run whose history
// names a file refers to it, and so does a schedule:
//
//   - [Files.Bind] first writes the reference, then reads the file. A deletion first marks the file, then reads the
//     references. So if the two race, at least one sees the other: either the deletion finds the reference and is
//     undone, or Bind finds the mark and waits for the decision.
//   - A mark has a random token. A process may carry out or undo a deletion only while its own token is in the mark.
//     So only one of several deletions decides, and another process can take over a deletion whose process has ended.
//   - There are no counters. A reference lasts as long as its run or schedule exists, so a crash leaves none behind
//     forever, and the deletion of a run needs no other step. A reference is written before its run: for [BindDelay]
//     it counts without the run.
//   - An object without a document is what an upload has left whose process has ended. It is deleted once it is older
//     than [UploadTimeout].
package file
