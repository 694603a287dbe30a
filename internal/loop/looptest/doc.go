// Package looptest checks the properties of every loop. Exercise walks a loop through
// random histories; Play runs scenarios that people read. Both also work for custom
// loops.
package looptest
