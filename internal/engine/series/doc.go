// Package series bounds the number of metric series that users can cause.
package series
