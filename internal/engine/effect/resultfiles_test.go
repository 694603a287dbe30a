package effect_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// cabinet is a storage of files that notes for which tenant and run it is asked.
type cabinet struct {
	t      *testing.T
	tenant string
	files  map[string]file.File
	bound  []string // "RUN FILE"
	bind   error    // of the next Bind
	open   error
}

func (c *cabinet) of(tenant string) {
	if tenant != c.tenant {
		c.t.Errorf("files of tenant %q, want those of %q only", tenant, c.tenant)
	}
}

func (c *cabinet) Put(_ context.Context, tenant string, f file.File, r io.Reader) (file.File, error) {
	c.of(tenant)
	content, err := io.ReadAll(r)
	f.ID, f.Bytes = "made", int64(len(content))
	c.files[f.ID] = f
	return f, err
}

func (c *cabinet) Get(_ context.Context, tenant, id string) (file.File, error) {
	c.of(tenant)
	f, ok := c.files[id]
	if !ok {
		return f, file.ErrNotFound
	}
	return f, nil
}

func (c *cabinet) Open(_ context.Context, tenant, _ string) (io.ReadCloser, error) {
	c.of(tenant)
	if c.open != nil {
		return nil, c.open
	}
	return io.NopCloser(strings.NewReader("content")), nil
}

func (c *cabinet) Bind(_ context.Context, tenant string, u file.User, ids ...string) error {
	c.of(tenant)
	if err := c.bind; err != nil {
		c.bind = nil
		return err
	}
	for _, id := range ids {
		c.bound = append(c.bound, string(u.Run)+" "+id)
	}
	return nil
}

// The run refers to the files of a result before its history names them, so that they are not deleted in between. The
// model reads about a file that could not be kept.
func TestFilesOfAResultAreKept(t *testing.T) {
	t.Parallel()
	uploaded := state.Part{Type: state.PartFile, FileID: "there", MediaType: "application/pdf"}
	for name, tt := range map[string]struct {
		file   state.Part
		bind   error
		want   string // id
		remark string
	}{
		"made by the tool":   {file: tool.File("a.pdf", "application/pdf", []byte("content")), want: "made"},
		"uploaded before":    {file: uploaded, want: "there"},
		"a bind that fails":  {file: uploaded, bind: errors.New("unavailable"), want: "there"},
		"of nobody":          {file: state.Part{Type: state.PartFile, FileID: "nowhere", MediaType: "application/pdf"}, remark: `has no file with the id "nowhere"`},
		"deleted at once":    {file: tool.File("a.pdf", "application/pdf", []byte("content")), bind: file.ErrNotFound, remark: "the file was deleted while it was stored"},
		"deleted in between": {file: uploaded, bind: file.ErrNotFound, remark: "has no file with the id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			c := &cabinet{t: t, tenant: state.DefaultTenant, files: map[string]file.File{"there": {ID: "there", MediaType: "application/pdf", Bytes: 7}}, bind: tt.bind}
			s.cfg.Tools.Files = c
			s.tools["scan"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				return tool.Result{Content: "scanned", Files: []state.Part{tt.file}}, nil
			})
			s.open(agent.Definition{Tools: []agent.Tool{{Name: "scan"}}}, calls("scan", "c1"))
			ran, ok := s.do(s.respond()).(loop.ToolsFinished)
			if !ok || len(ran.Results) != 1 {
				t.Fatalf("event %+v", ran)
			}
			r := ran.Results[0]
			if tt.want == "" {
				if len(r.Files) > 0 || len(c.bound) > 0 || !strings.Contains(r.Content, tt.remark) {
					t.Errorf("the result is %q with %d files, and bound are %q", r.Content, len(r.Files), c.bound)
				}
				return
			}
			if len(r.Files) != 1 || r.Files[0].FileID != tt.want || r.Files[0].Data != "" || r.Content != "scanned" {
				t.Errorf("the result is %+v", r)
			}
			if want := []string{string(s.s.ID) + " " + tt.want}; !slices.Equal(c.bound, want) {
				t.Errorf("bound are %q, want %q", c.bound, want)
			}
		})
	}
}

// A call whose files cannot be read returns the memory that it had for them. It is tried again if that can help.
func TestUnreadableFileReturnsItsMemory(t *testing.T) {
	t.Parallel()
	for cause, class := range map[error]model.Class{file.ErrNotFound: model.InvalidRequest, errors.New("unavailable"): model.Transport} {
		s := newStage(t)
		memory := admission.NewAnswers(1000)
		s.cfg.Models.Files, s.cfg.Models.Memory = &cabinet{t: t, tenant: state.DefaultTenant, open: cause}, memory
		s.open(agent.Definition{}, model.Scripted{Text: "unused"})
		call, ok := s.begin().(loop.CallModel)
		if !ok {
			t.Fatal("the turn does not begin with a call")
		}
		call.Messages = []state.Message{{Role: state.RoleUser, Parts: []state.Part{{Type: state.PartFile, FileID: "f", MediaType: "application/pdf", Bytes: 300}}}}
		if ev, failed := s.do(call).(loop.ModelFailed); !failed || ev.Err.Class != class {
			t.Fatalf("event %+v, want a failed call of class %s", ev, class)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		free, err := memory.Reserve(ctx, state.DefaultTenant, 1000, nil)
		if err != nil {
			t.Fatalf("after %v the memory is still in use: %v", cause, err)
		}
		free.Release()
	}
}

// panicking is a provider that panics in the middle of a long response.
type panicking struct{}

func (panicking) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	model.ReceiptFrom(ctx).Keep(1 << 20)
	panic("ouch")
}

// A provider that panics returns the memory of its response, and that of the files in its request.
func TestPanickingProviderReturnsMemory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	files, responses := admission.NewAnswers(1000), admission.NewAnswers(256<<20)
	s.cfg.Models.Files, s.cfg.Models.Memory, s.cfg.Models.Answers = &cabinet{t: t, tenant: state.DefaultTenant}, files, responses
	s.model = panicking{}
	s.open(agent.Definition{}, model.Scripted{Text: "unused"})
	call, ok := s.begin().(loop.CallModel)
	if !ok {
		t.Fatal("the turn does not begin with a call")
	}
	call.Messages = []state.Message{{Role: state.RoleUser, Parts: []state.Part{{Type: state.PartFile, FileID: "f", MediaType: "application/pdf", Bytes: 7}}}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		_, _ = s.Do(s.ctx, &s.turn, call)
	}()
	if files.Bytes() != 0 || responses.Bytes() != 0 {
		t.Errorf("%d bytes for files and %d for responses are still in use", files.Bytes(), responses.Bytes())
	}
}
