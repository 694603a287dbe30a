package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Picture returns an image with its media type in the form that providers know.
func Picture(i state.Image) state.Image {
	i.MediaType = strings.ToLower(strings.TrimSpace(i.MediaType))
	if i.MediaType == "image/jpg" {
		i.MediaType = "image/jpeg"
	}
	return i
}

// FilterImages returns the images of a tool result that a model accepts, and a remark about the others. types are the
// media types of data that the model accepts; images with a URL always stay. A refused image must not reach the
// provider: it would end the run because of a tool's output.
func FilterImages(images []state.Image, types ...string) (shown []state.Image, remark string) {
	for _, i := range images {
		i = Picture(i)
		if i.URL == "" && !slices.Contains(types, i.MediaType) {
			remark += fmt.Sprintf("\n[an image is left out: %s is not one of %s]", i.MediaType, strings.Join(types, ", "))
			continue
		}
		shown = append(shown, i)
	}
	return shown, remark
}
