// Package upgrade tests that a build goes on with what earlier ones have stored.
//
// testdata/v<format>/ holds, for each store, a deployment that was frozen in the middle of
// its work by a build that wrote that format: everything in the store, and what lay on
// the streams. A fixture is never written again. When state.Format is raised,
//
//	go test ./internal/verify/upgrade -run Freeze -update
//
// adds the fixtures of the new one; the old ones stay, and must go on to finish. Those of a
// format that no release has written yet may be made anew.
//
// TestFleet has processes of an older build beside this one, and looks at which format is
// stored.
package upgrade
