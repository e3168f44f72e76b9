package privatefolder

// Check returns nil, because folders in a user's profile belong to the user alone.
func Check(string) error { return nil }

type process struct{}

func thisProcess() process { return process{} }

func (p process) forOwner(string) process { return p }

func (process) check(string, bool) error { return nil }

func (process) checkAbove(string) error { return nil }
