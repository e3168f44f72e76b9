package respond

// Held returns the number of different documents that are being sent.
func (d *Documents) Held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.bodies)
}
