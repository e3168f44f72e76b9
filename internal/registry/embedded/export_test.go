package embedded

// SetBeforeFile sets the function that a garbage collection calls before each file operation.
func (r *Registry) SetBeforeFile(f func(operation, name string)) { r.beforeFile = f }
