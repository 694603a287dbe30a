// Package modeltest holds what every provider must do, whatever stands behind it.
package modeltest
