package natsbus

import "time"

// ForgetReady makes the next calls of Ready and IntakeReady check the streams instead of repeating an answer.
func ForgetReady(b *Bus) {
	for _, w := range []*writes{&b.turnWrites, &b.intakeWrites} {
		w.mu.Lock()
		w.until = time.Time{}
		w.mu.Unlock()
	}
}
