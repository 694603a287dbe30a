package tool

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Limits of the files of one result.
const (
	MaxFiles     = 16
	MaxFileBytes = 8 << 20 // decoded data of all files together

	// MaxFileName is the maximum length of the name of a file, in bytes.
	MaxFileName = 255
)

// File returns a file for Result.Files: content of a media type such as application/pdf, with a name that
// may be empty. The worker stores the content as an uploaded file of the run's tenant.
func File(name, mediaType string, content []byte) state.Part {
	return state.Part{
		Type: state.PartFile, Name: name, MediaType: mediaType,
		Data: base64.StdEncoding.EncodeToString(content), Bytes: int64(len(content)),
	}
}

// UploadedFile returns a file for Result.Files that was uploaded before. It must belong to the run's tenant.
func UploadedFile(id string) state.Part { return state.Part{Type: state.PartFile, FileID: id} }

// CheckFiles returns the files that a result may keep, in order, and a remark that lists the omitted files and the
// reasons: invalid files, and those beyond MaxFiles or MaxFileBytes. The remark is empty if all files stay. Each
// returned file has Type, and Bytes if it has data.
func CheckFiles(files []state.Part) (kept []state.Part, remark string) {
	size := int64(0)
	var out omissions
	for i, f := range files {
		checked, err := checkFile(f)
		switch {
		case err != nil:
		case len(kept) == MaxFiles:
			err = fmt.Errorf("a result may have at most %d files: the tool must return fewer", MaxFiles)
		case size+checked.Bytes > MaxFileBytes:
			err = fmt.Errorf("the data of the result's files have %d bytes with this one, at most %d are allowed: the tool must upload the file, and return its file_id", size+checked.Bytes, MaxFileBytes)
		}
		if err != nil {
			out.add(FileRemark(i, err))
			continue
		}
		size += checked.Bytes
		kept = append(kept, checked)
	}
	return kept, out.String()
}

// FileRemark returns the remark that the model reads in place of file i, from 0, of a result.
func FileRemark(i int, err error) string { return fmt.Sprintf("\n[file %d left out: %v]", i+1, err) }

// checkFile returns f with only the fields that a file in a result may have, or the reason why f is invalid.
func checkFile(f state.Part) (state.Part, error) {
	given := 0
	for _, text := range []string{f.FileID, f.Data, f.URL} {
		if text != "" {
			given++
		}
	}
	switch {
	case f.Type != "" && f.Type != state.PartFile:
		return f, fmt.Errorf("the type of the file is %.40q: set type to \"file\", or omit it", f.Type)
	case given == 0 && f.MediaType != "":
		return f, errors.New("the file has no content: give data, or a file_id or url instead")
	case given != 1:
		return f, errors.New("a file needs file_id, data or url: give exactly one of them")
	case len(f.FileID) > MaxFileName:
		return f, fmt.Errorf("there is no file %.60q: upload it, and use the id in the response", f.FileID)
	}
	if err := state.CheckURL(f.URL); err != nil {
		return f, err
	}
	if f.FileID != "" { // the file itself says the rest
		return state.Part{Type: state.PartFile, FileID: f.FileID}, nil
	}
	if len(f.Name) > MaxFileName {
		return f, fmt.Errorf("the file's name has %d bytes, at most %d are allowed: shorten it", len(f.Name), MaxFileName)
	}
	if !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, unicode.IsControl) {
		return f, fmt.Errorf("the file's name %.60q is not UTF-8 or has control characters: correct it", f.Name)
	}
	if _, _, err := mime.ParseMediaType(f.MediaType); err != nil || strings.Count(f.MediaType, "/") != 1 || len(f.MediaType) > 127 {
		return f, fmt.Errorf("media_type %.60q is not a media type: write one such as application/pdf", f.MediaType)
	}
	checked := state.Part{Type: state.PartFile, Name: f.Name, MediaType: f.MediaType, Data: f.Data, URL: f.URL}
	if f.Data == "" {
		return checked, nil
	}
	// Too large ones are not decoded.
	if checked.Bytes = int64(base64.StdEncoding.DecodedLen(len(f.Data))); checked.Bytes > MaxFileBytes+2 {
		return checked, nil
	}
	data, err := base64.StdEncoding.DecodeString(f.Data)
	if err != nil {
		return f, errors.New("the file's data is not base64: encode it")
	}
	if len(data) == 0 { // line ends alone are base64
		return f, errors.New("the file's data is empty: send the content in base64")
	}
	checked.Bytes = int64(len(data))
	return checked, nil
}
