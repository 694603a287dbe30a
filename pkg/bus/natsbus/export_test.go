package natsbus

import "time"

// ForgetReady has the next calls of Ready and IntakeReady look at streams, and not repeat an answer.
func ForgetReady(b *Bus) {
	for _, w := range []*writes{&b.turnWrites, &b.intakeWrites} {
		w.mu.Lock()
		w.until = time.Time{}
		w.mu.Unlock()
	}
}
