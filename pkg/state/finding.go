package state

// Finding is what a check of a server or a setting found: a line of `turnpike doctor`, or a reason
// not to start. It never contains credentials.
type Finding struct {
	Name   string `json:"name"` // what was checked, such as "redis: maxmemory-policy"
	OK     bool   `json:"ok"`
	Fatal  bool   `json:"fatal"`  // unless OK, a process must not start
	Broken bool   `json:"broken"` // unless OK, a process starts, but runs make no progress
	Detail string `json:"detail"` // what was found
	Remedy string `json:"remedy"` // how to fix it; empty if OK
}
