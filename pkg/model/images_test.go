package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestFilterImages(t *testing.T) {
	t.Parallel()
	shown, remark := model.FilterImages([]state.Image{
		{MediaType: "image/JPG", Data: "AAAA"}, {MediaType: "image/svg+xml", Data: "AAAA"}, {URL: "https://example.com/a.svg"},
	}, "image/png", "image/jpeg")
	want := []state.Image{{MediaType: "image/jpeg", Data: "AAAA"}, {URL: "https://example.com/a.svg"}}
	if diff := cmp.Diff(want, shown); diff != "" || remark != "\n[an image is left out: image/svg+xml is not one of image/png, image/jpeg]" {
		t.Errorf("note %q, shown (-want +got):\n%s", remark, diff)
	}
}
