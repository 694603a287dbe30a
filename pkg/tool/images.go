package tool

import (
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Limits of the images of one result. A worker omits the images beyond them, with a remark (CheckImages); a signal
// with such a result is refused. Within them a checkpoint fits through a NATS server with the default max_payload of
// 1 MiB. If the store has no capacity for a result in addition to the others of its turn, the worker replaces the
// whole result, not only its images, with an error.
const (
	MaxImages     = 16
	MaxImageBytes = 700 << 10 // base64 data of all images together
)

// CheckImages returns the images that a result may keep, in order, and a remark that lists the omitted images and the
// reasons: invalid images, and those beyond MaxImages or MaxImageBytes. The remark is empty if all images stay.
func CheckImages(images []state.Image) (kept []state.Image, remark string) {
	size := 0
	var out omissions
	for i, image := range images {
		err := image.Check()
		switch {
		case err != nil:
		case len(kept) == MaxImages:
			err = fmt.Errorf("a result may have at most %d images: the tool must return fewer", MaxImages)
		case size+len(image.Data) > MaxImageBytes:
			err = fmt.Errorf("the result's images have %d bytes of base64 with this one, at most %d are allowed: the tool must return smaller images, or URLs", size+len(image.Data), MaxImageBytes)
		}
		if err != nil {
			out.add(fmt.Sprintf("\n[image %d left out: %v]", i+1, err))
			continue
		}
		size += len(image.Data)
		kept = append(kept, image)
	}
	return kept, out.String()
}

// maxRemarks is the maximum number of remarks about parts of one result: a server chooses how many parts it sends, and
// remarks do not count for max_result.
const maxRemarks = 16

// omissions are the remarks about the omitted parts of a result. Beyond maxRemarks they are counted.
type omissions struct {
	text strings.Builder
	n    int
}

func (o *omissions) add(remark string) {
	if o.n++; o.n <= maxRemarks {
		o.text.WriteString(remark)
	}
}

func (o *omissions) String() string {
	if o.n > maxRemarks {
		return o.text.String() + fmt.Sprintf("\n[%d more left out]", o.n-maxRemarks)
	}
	return o.text.String()
}
