// Package browser tests the page in a real browser, Chromium, against a real deployment: a gateway and two
// workers as processes, NATS with JetStream, and tools. It acts like a user, kills a worker while the page is
// open, shows the page hostile texts, checks accessibility with axe, and takes screenshots. It has the build
// tag browser, since it needs Chromium and axe-core: `make page-test` installs both.
//
// TestLayout needs no deployment: testdata/layout has a gateway's recorded responses to the page (-record
// records them again), the positions of the landmarks of each screen, and small screenshots (-update rewrites
// both). The clock is fixed and the fonts are those of testdata.
package browser
