package state

// EntryFast and StateFast decode what the encoder writes, and report whether text is that.
func EntryFast(text string) (e Entry, ok bool) {
	var d decoder
	d.begin(text)
	d.entry(&e)
	return e, d.done()
}

func StateFast(text string) (s State, ok bool) {
	var d decoder
	d.begin(text)
	d.state(&s)
	return s, d.done()
}

// CompactValue is exported for its tests.
func CompactValue(s string) int { return compactValue(s, maxNested) }
