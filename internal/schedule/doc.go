// Package schedule computes the instants at which a schedule fires.
//
// A schedule is a cron expression in a time zone. Where the clocks of the zone change, an expression with
// fixed hours fires once for each local time that it names: at the first of the two instants of a time that
// the clocks show twice, and at the change itself for the times that they skip. An expression whose hour
// is * counts elapsed time instead: "*/10 * * * *" fires every ten minutes, also on those days.
package schedule
