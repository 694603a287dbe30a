package model_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// streamed reads a stream of lines as an adapter does, which keeps content of each, and returns the bytes that it read.
func streamed(ctx context.Context, t *testing.T, lines, length, content int) (int64, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), length-1), '\n')
	var parts []io.Reader
	for range lines {
		parts = append(parts, bytes.NewReader(line))
	}
	body := io.MultiReader(parts...)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), Request: req}
	if err := model.CheckHTTP("openai", "", resp); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	receipt, read, buf := model.ReceiptFrom(ctx), int64(0), make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		read += int64(n)
		for range bytes.Count(buf[:n], []byte("\n")) {
			receipt.Keep(content)
		}
		if err != nil {
			return read, err
		}
	}
}

// A long stream of small events keeps little. One that keeps much needs memory, and no stream may keep more than its
// limit, whether in many events or in one.
func TestReceipt(t *testing.T) {
	t.Parallel()
	var reserved int64
	grow := func(n int64) bool { reserved += n; return reserved <= 64<<20 }
	for name, tt := range map[string]struct {
		lines, length, content int
		code                   model.Class // "": io.EOF
		reserves               bool
	}{
		"a usual response":       {4000, 300, 4, "", false},
		"a long response":        {128_000, 300, 4, "", true},
		"many long pieces":       {60_000, 1000, 900, model.Overloaded, true},
		"one event":              {1, 60 << 20, 0, model.Overloaded, true},
		"a large event, as 1 MB": {1, 1 << 20, 0, "", true},
	} {
		reserved = 0
		read, err := streamed(model.WithReceipt(t.Context(), grow), t, tt.lines, tt.length, tt.content)
		e, failed := errors.AsType[*model.Error](err)
		switch {
		case tt.code == "" && !errors.Is(err, io.EOF), tt.code != "" && (!failed || e.Class != tt.code):
			t.Errorf("%s: %v", name, err)
		case tt.code != "" && read > 20<<20:
			t.Errorf("%s: %d bytes were read before it failed", name, read)
		case (reserved > 0) != tt.reserves:
			t.Errorf("%s reserved %d bytes", name, reserved)
		}
	}
	all := func(int64) bool { return true }
	if read, err := streamed(model.WithReceipt(t.Context(), all), t, 60_000, 1000, 900); err == nil || !strings.Contains(err.Error(), "24 MiB") || read > 30<<20 {
		t.Errorf("%d bytes were read: %v", read, err)
	}
	receipt := model.ReceiptFrom(model.WithReceipt(t.Context(), all))
	receipt.KeepItems(100)
	model.ReceiptFrom(t.Context()).KeepItems(1) // no receipt
}
