// Package degraded tests deployments whose dependencies are unreachable, full or slow: during the fault
// and after it, it checks from outside the answers that users get.
package degraded
