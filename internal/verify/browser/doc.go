// Package browser tests the page in a real browser, Chromium, against a real deployment: a
// gateway and two workers as processes, NATS with JetStream, and tools. It acts as people do,
// kills a worker while the page looks on, shows the page texts that would like to be scripts,
// has axe judge it, and takes pictures of it. It has the build tag browser, since it needs
// Chromium and axe-core: `make page-test` installs both.
//
// TestLayout needs no deployment: testdata/layout has a gateway's recorded answers to the page
// (-record records them again), the positions of the landmarks of each screen, and small pictures
// of it (-update writes both again). The clock stands still and the fonts are those of testdata.
package browser
