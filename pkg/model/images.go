package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Picture returns an image with the name of its type as providers know it.
func Picture(i state.Image) state.Image {
	i.MediaType = strings.ToLower(strings.TrimSpace(i.MediaType))
	if i.MediaType == "image/jpg" {
		i.MediaType = "image/jpeg"
	}
	return i
}

// Shown returns the images of a tool's result that a model can be shown, which takes
// data of the given types, and a remark about the others. One that a provider
// refuses would end the run for what a tool said.
func Shown(images []state.Image, types ...string) (shown []state.Image, remark string) {
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
