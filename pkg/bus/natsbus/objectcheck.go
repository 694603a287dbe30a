package natsbus

import (
	"context"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// nearlyFull is the percentage of its limit from which a stream of files is reported.
const nearlyFull = 90

// checkObjects reports streams of uploaded files whose settings differ from the configured ones, that have no
// limit, or that are nearly full.
func (b *Bus) checkObjects(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: streams of files", OK: true}
	own := b.streamOf(state.DefaultTenant, kindFiles)
	streams := b.js.ListStreams(ctx)
	n, size, unlimited, differing := 0, uint64(0), 0, error(nil)
	var full []string
	for info := range streams.Info() {
		tenant, ok := strings.CutPrefix(info.Config.Name, own+"_")
		if info.Config.Name == own {
			tenant, ok = state.DefaultTenant, true
		}
		if !ok {
			continue
		}
		n++
		size += info.State.Bytes
		want := b.objectStream(tenant)
		if err := differs(want, info.Config); err != nil && differing == nil {
			differing = err
		}
		switch limit := info.Config.MaxBytes; {
		case want.MaxBytes > 0 && limit <= 0:
			unlimited++
		case limit > 0 && info.State.Bytes >= uint64(limit)/100*nearlyFull:
			full = append(full, tenant)
		}
	}
	f.Detail = fmt.Sprintf("%d with %d MiB, settings are right", n, size>>20)
	switch err := streams.Err(); {
	case err != nil:
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that NATS answers, and permit the NATS user of this process to list streams, in the configuration of the NATS server"
	case differing != nil:
		f.OK = false
		f.Detail, f.Remedy = explained(differing, "")
	case len(full) > 0:
		f.OK, f.Detail = false, fmt.Sprintf("the files of %s use %d %% of their limit or more", strings.Join(full[:min(len(full), 5)], ", "), nearlyFull)
		f.Remedy = "delete files with turnpike files rm, or raise TURNPIKE_FILES_MIB"
	case unlimited > 0:
		f.OK, f.Detail = false, fmt.Sprintf("%d of %d have no size limit, since NATS could not reserve TURNPIKE_FILES_MIB", unlimited, n)
		f.Remedy = "raise max_file_store of NATS, or lower TURNPIKE_FILES_MIB"
	}
	return f
}
