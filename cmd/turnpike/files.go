package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type filesCmd struct {
	Put filesPutCmd `cmd:"" help:"Upload a file and print its id."`
	Ls  filesLsCmd  `cmd:"" help:"List files."`
	Get filesGetCmd `cmd:"" help:"Download the content of a file."`
	Rm  filesRmCmd  `cmd:"" help:"Delete a file that no run and no schedule names."`
}

type filesPutCmd struct {
	File string `arg:"" help:"File to upload; - is standard input."`
	Name string `help:"Name of the file; default that of the path."`
	Type string `help:"Media type, such as application/pdf; default by the name or the content."`
}

func (c *filesPutCmd) Run(e *env) error {
	f, err := e.upload(c.File, c.Name, c.Type)
	if err != nil {
		return err
	}
	return e.print(f, f.ID)
}

// upload uploads a file while it reads it; - is standard input.
func (e *env) upload(path, name, mediaType string) (api.File, error) {
	in := api.FileUpload{Name: name, MediaType: mediaType, Content: e.in}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return api.File{}, named(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return api.File{}, err
		}
		if info.Mode().IsRegular() {
			in.Bytes = info.Size()
		}
		if in.Content = io.Reader(f); name == "" {
			in.Name = filepath.Base(path)
		}
	}
	return e.client.PutFile(e.ctx, in)
}

type filesLsCmd struct {
	Limit int `default:"200" help:"Maximum number of files."`
}

func (c *filesLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.File], error) {
		return e.client.Files(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("ID\tBYTES\tTYPE\tCREATED\tNAME", page.Items, func(f api.File) string {
		return strings.Join([]string{f.ID, strconv.FormatInt(f.Bytes, 10), f.MediaType, f.CreatedAt.UTC().Format(time.RFC3339), f.Name}, "\t")
	}))
}

type filesGetCmd struct {
	ID   string `arg:"" help:"Id of the file."`
	File string `arg:"" optional:"" default:"-" help:"Where to write the content; - is standard output."`
}

func (c *filesGetCmd) Run(e *env) error {
	content, err := e.client.FileContent(e.ctx, c.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	if c.File == "-" {
		_, err := io.Copy(e.content, content)
		return err
	}
	f, err := os.Create(c.File)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

type filesRmCmd struct {
	ID string `arg:"" help:"Id of the file."`
}

func (c *filesRmCmd) Run(e *env) error {
	if err := e.client.DeleteFile(e.ctx, c.ID); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.ID}, "removed "+c.ID)
}

// withFiles uploads files and adds them to the input of a run, which must be a string.
func (e *env) withFiles(input json.RawMessage, paths []string) (json.RawMessage, error) {
	if len(paths) == 0 {
		return input, nil
	}
	var text string
	if json.Unmarshal(input, &text) != nil {
		return nil, usagef("--file needs an input that is a text: with --from, name the files in the messages instead")
	}
	type part struct {
		Type   state.PartType `json:"type"`
		Text   string         `json:"text,omitempty"`
		FileID string         `json:"file_id,omitempty"`
	}
	parts := []part{{Type: state.PartText, Text: text}}
	for _, path := range paths {
		f, err := e.upload(path, "", "")
		if err != nil {
			return nil, fmt.Errorf("upload %s: %w", path, err)
		}
		parts = append(parts, part{Type: state.PartFile, FileID: f.ID})
	}
	return json.Marshal([]map[string]any{{"role": state.RoleUser, "parts": parts}})
}
