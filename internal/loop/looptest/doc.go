// Package looptest holds loops to what must be true of every loop. Exercise walks
// a loop through random histories; Play runs scenarios that people read. Both are
// for loops of third parties, too.
package looptest
