package verify

const Remembered = remembered

// Counts are the numbers of results that a checker has counted.
type Counts struct{ Verified, Refused, Withheld uint64 }

// Counts returns the current counts.
func (c *Checker) Counts() Counts {
	return Counts{c.n.Verified.Load(), c.n.Refused.Load(), c.n.Withheld.Load()}
}
