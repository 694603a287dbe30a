package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// --if-version 0 is a condition like any other version: the file must not exist. Only a change without the flag
// applies to every version.
func TestChangesOfMemoryStateTheirVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"": "", "0": `"0"`, "7": `"7"`} {
		var got []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = append(got, r.Header.Get("If-Match"))
			fmt.Fprint(w, `{"path":"a.md","version":8}`)
		}))
		t.Cleanup(s.Close)
		for _, args := range [][]string{{"memory", "put", "a.md", "text", "--scope", "tenant"}, {"memory", "rm", "a.md", "--scope", "tenant"}} {
			if args = append(args, "--server", s.URL); flag != "" {
				args = append(args, "--if-version", flag)
			}
			if out, code := command(t, dir, args...); code != 0 {
				t.Fatalf("%v: exit code %d, %s", args, code, out)
			}
		}
		if len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("--if-version %q sends If-Match %q, want %q twice", flag, got, want)
		}
	}
}
