package docs_test

// block is a block of code of a page.
type block struct {
	at   string // page and line
	text string
}
