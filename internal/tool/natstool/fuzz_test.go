package natstool

import (
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Any reply of a service becomes a result, and an error never counts as a success (A7).
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `"text"`, `{"content":"text"}`, `{"content":{"a":[1,2.50]}}`, `{"content":null,"error":null}`, `{"error":"broken"}`,
		`{"error":{"code":7},"content":1}`, `{"error":""}`, `{"pending":true}`, `{"content":"x","images":[{"url":"https://example.com"}]}`, `{"images":[{}]}`,
		`{"files":[{"type":"file","file_id":"file_x"}]}`, `{"content":"x","files":[{"media_type":"application/pdf","data":"JVBERg==","name":"a.pdf"},{}]}`,
	} {
		f.Add([]byte(seed), "", "")
		f.Add([]byte(seed), "500", "no stock")
	}
	f.Fuzz(func(t *testing.T, data []byte, code, text string) {
		m := &nats.Msg{Data: data, Header: nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {text}}}
		r := result("t", m)
		if (code != "" || text != "") && !r.IsError {
			t.Errorf("an error in the headers counts as a success: %+v", r)
		}
		if r.IsError && (r.Content == "" || r.Pending || len(r.Images)+len(r.Files) > 0) {
			t.Errorf("error result = %+v", r)
		}
		kept, _ := tool.CheckFiles(r.Files)
		for _, f := range kept {
			if f.Type != state.PartFile || (f.FileID != "") == (f.MediaType != "") || len(f.Files) > 0 {
				t.Errorf("kept the file %+v", f)
			}
		}
		if utf8.Valid(data) && utf8.ValidString(text) && utf8.ValidString(code) && !utf8.ValidString(r.Content) {
			t.Errorf("the result is not UTF-8: %q", r.Content)
		}
	})
}
