//go:build browser

package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

const (
	picturesDir = "testdata/layout/pictures"
	docsDir     = "../../../docs/images"
)

// inDocs names the screens whose screenshots README and docs show, 1280 pixels wide and light.
var inDocs = []string{"approval", "batch", "evaluation", "figures", "research", "runs"}

// Screenshots are stored small, one pixel per square of the screen: enough to see what changed and where. A
// pixel may differ by tolerance.
const (
	square    = 10
	tolerance = 12
)

// gallery compares screenshots with those of testdata, which one Chromium version drew.
type gallery struct {
	b       *browser
	version string
	compare bool
	differ  []string
}

func openGallery(b *browser) *gallery {
	b.t.Helper()
	g := &gallery{b: b}
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, product, _, _, _, err := cdpbrowser.GetVersion().Do(ctx)
		g.version = product[strings.LastIndex(product, "/")+1:]
		return err
	}))
	was, err := os.ReadFile(filepath.Join(picturesDir, "chromium.txt"))
	if err != nil && !*update {
		b.t.Fatal(err)
	}
	g.compare = strings.TrimSpace(string(was)) == g.version
	if !g.compare && !*update {
		b.t.Logf("pixels are not compared: this is Chromium %s, and the pictures are of %s", g.version, strings.TrimSpace(string(was)))
	}
	return g
}

// open reports whether screenshots are compared or stored.
func (g *gallery) open() bool { return g.compare || *update || os.Getenv("TURNPIKE_PICTURES") != "" }

// picture compares the screen with its screenshot, or stores a new one.
func (g *gallery) picture(name string) {
	g.b.t.Helper()
	shot := g.b.shot(name, g.compare || *update)
	if shot == nil || !g.compare && !*update {
		return
	}
	whole, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		g.b.t.Fatal(err)
	}
	now := reduced(whole)
	file := filepath.Join(picturesDir, name+".png")
	if *update {
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, now); err != nil {
			g.b.t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			g.b.t.Fatal(err)
		}
		if screen, ok := strings.CutSuffix(name, docsSize); ok && slices.Contains(inDocs, screen) {
			g.keep(screen, whole)
		}
		return
	}
	was := decode(g.b.t, file)
	if where, n := differs(was, now); n > 0 {
		g.differ = append(g.differ, fmt.Sprintf("%s: %d squares, within %v", name, n, where))
	}
}

// docsSize is the suffix of the screenshots that docs show.
const docsSize = "-1280-light"

// keep writes a screenshot for the docs.
func (g *gallery) keep(screen string, p image.Image) {
	g.b.t.Helper()
	if err := os.MkdirAll(docsDir, 0o755); err != nil {
		g.b.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, p); err != nil {
		g.b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(docsDir, screen+".png"), out.Bytes(), 0o644); err != nil {
		g.b.t.Fatal(err)
	}
}

// TestPicturesInDocs checks that docs show the screens as TestLayout last drew them.
func TestPicturesInDocs(t *testing.T) {
	t.Parallel()
	for _, screen := range inDocs {
		shown, drawn := decode(t, filepath.Join(docsDir, screen+".png")), decode(t, filepath.Join(picturesDir, screen+docsSize+".png"))
		if where, n := differs(drawn, reduced(shown)); n > 0 {
			t.Errorf("docs/images/%s.png shows an older screen: %d squares differ, within %v. Draw it again: go test -tags browser ./internal/verify/browser -run TestLayout -update", screen, n, where)
		}
	}
	files, err := os.ReadDir(docsDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(inDocs) {
		t.Errorf("docs/images has %d files, want the %d that this test draws", len(files), len(inDocs))
	}
}

func decode(t *testing.T, file string) image.Image {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (g *gallery) end() {
	g.b.t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(picturesDir, "chromium.txt"), []byte(g.version+"\n"), 0o644); err != nil {
			g.b.t.Fatal(err)
		}
		return
	}
	for _, d := range g.differ[:min(len(g.differ), 30)] {
		g.b.t.Errorf("pixels differ from before: %s", d)
	}
}

// reduced returns a picture with one pixel per square: its mean.
func reduced(p image.Image) *image.RGBA {
	r := p.Bounds()
	whole := image.NewRGBA(r)
	draw.Draw(whole, r, p, r.Min, draw.Src)
	out := image.NewRGBA(image.Rect(0, 0, (r.Dx()+square-1)/square, (r.Dy()+square-1)/square))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			var sum [3]int
			n := 0
			for j := y * square; j < min((y+1)*square, r.Dy()); j++ {
				line := whole.Pix[j*whole.Stride:]
				for i := x * square; i < min((x+1)*square, r.Dx()); i++ {
					for c := range sum {
						sum[c] += int(line[4*i+c])
					}
					n++
				}
			}
			out.SetRGBA(x, y, color.RGBA{uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n), 255})
		}
	}
	return out
}

// differs returns the number of different pixels, and the area that contains them.
func differs(was image.Image, now *image.RGBA) (image.Rectangle, int) {
	if was.Bounds() != now.Bounds() {
		return now.Bounds(), now.Bounds().Dx() * now.Bounds().Dy()
	}
	var where image.Rectangle
	n := 0
	for y := range now.Rect.Dy() {
		for x := range now.Rect.Dx() {
			a, b := was.At(x, y), now.At(x, y)
			ar, ag, ab, _ := a.RGBA()
			br, bg, bb, _ := b.RGBA()
			if far(ar, br) || far(ag, bg) || far(ab, bb) {
				where = where.Union(image.Rect(x*square, y*square, (x+1)*square, (y+1)*square))
				n++
			}
		}
	}
	return where, n
}

func far(a, b uint32) bool {
	d := int(a>>8) - int(b>>8)
	return d > tolerance || d < -tolerance
}
