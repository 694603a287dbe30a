package keys

// Nearest returns the one of names of which name is probably a misspelling: the first one with the fewest bytes
// inserted, left out or replaced, at most three and at most half of name. It returns "" if no name is close enough.
func Nearest(name string, names []string) string {
	best, at := "", min(4, len(name)/2+1)
	for _, n := range names {
		if d := distance(name, n); d < at {
			best, at = n, d
		}
	}
	return best
}

// distance counts the letters to insert, leave out or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
