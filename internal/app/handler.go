package app

import (
	"context"
	"log/slog"
	"slices"

	"github.com/rs/zerolog"
)

// timeFormat has milliseconds, to order the lines of several processes.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// handler is a slog.Handler that writes with zerolog, from level on. It writes a duration
// as a number of milliseconds, and an error as its text.
type handler struct {
	out    zerolog.Logger // with the attributes outside of groups
	level  slog.Level
	groups []group // that are open, the outermost first
}

// group is an open group with the attributes that its logger has.
type group struct {
	name  string
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	e := h.out.WithLevel(zerologLevel(r.Level))
	if len(h.groups) == 0 {
		r.Attrs(func(a slog.Attr) bool {
			writeAttr(e, a)
			return true
		})
	} else {
		writeGroups(e, h.groups, r)
	}
	if !r.Time.IsZero() {
		e.Str(zerolog.TimestampFieldName, r.Time.Format(timeFormat))
	}
	e.Msg(r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	if n := len(h.groups); n == 0 {
		with.out = h.out.With().EmbedObject(object(attrs)).Logger()
	} else {
		with.groups = slices.Clone(h.groups)
		with.groups[n-1].attrs = slices.Concat(h.groups[n-1].attrs, attrs)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.groups = append(slices.Clone(h.groups), group{name: name})
	return &with
}

// writeGroups writes the attributes of open groups, and those of r into the innermost.
func writeGroups(e *zerolog.Event, groups []group, r slog.Record) {
	var inner []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		inner = append(inner, a)
		return true
	})
	for _, g := range slices.Backward(groups) {
		if inner = slices.Concat(g.attrs, inner); len(inner) > 0 {
			inner = []slog.Attr{{Key: g.name, Value: slog.GroupValue(inner...)}}
		}
	}
	object(inner).MarshalZerologObject(e)
}

// object is a group of attributes as a JSON object.
type object []slog.Attr

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (o object) MarshalZerologObject(e *zerolog.Event) {
	for _, a := range o {
		writeAttr(e, a)
	}
}

func writeAttr(e *zerolog.Event, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	switch v.Kind() {
	case slog.KindString:
		e.Str(a.Key, v.String())
	case slog.KindInt64:
		e.Int64(a.Key, v.Int64())
	case slog.KindUint64:
		e.Uint64(a.Key, v.Uint64())
	case slog.KindFloat64:
		e.Float64(a.Key, v.Float64())
	case slog.KindBool:
		e.Bool(a.Key, v.Bool())
	case slog.KindDuration:
		e.Dur(a.Key, v.Duration())
	case slog.KindTime:
		e.Str(a.Key, v.Time().Format(timeFormat))
	case slog.KindGroup:
		switch group := object(v.Group()); {
		case a.Key == "":
			group.MarshalZerologObject(e)
		case len(group) > 0:
			e.Object(a.Key, group)
		}
	default:
		if err, ok := v.Any().(error); ok {
			e.AnErr(a.Key, err)
		} else {
			e.Interface(a.Key, v.Any())
		}
	}
}

func zerologLevel(level slog.Level) zerolog.Level {
	switch {
	case level < slog.LevelInfo:
		return zerolog.DebugLevel
	case level < slog.LevelWarn:
		return zerolog.InfoLevel
	case level < slog.LevelError:
		return zerolog.WarnLevel
	default:
		return zerolog.ErrorLevel
	}
}
