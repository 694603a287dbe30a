// Package file keeps the files that callers upload for models, by tenant. The content of a file is an
// object of the bus, the rest a document in the store.
//
// A file is deleted when it has been without references for [Keep], or when a caller deletes it. What
// refers to a file is a run whose history names it, or a schedule:
//
//   - [Files.Bind] first writes the reference, then reads the file. A deletion first marks the file, then
//     reads the references. So at least one of two that race sees the other: either the deletion finds the
//     reference and is undone, or Bind finds the mark and waits for the decision.
//   - A mark has a random token. A deletion may proceed, or be undone, only while its own token is there.
//     Thus of several deletions one decides, and another process can take over one whose process has ended.
//   - Nothing counts down. A reference lasts as long as its run or schedule exists, so no crash leaves one
//     behind for ever, and the deletion of a run needs no other step. A reference precedes its run: for
//     [BindDelay] it counts without one.
//   - An object without a document is the rest of an upload whose process has ended. It is deleted once it
//     is older than [UploadTimeout].
package file
