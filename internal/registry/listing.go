package registry

// Unlisted is a registry, template or repository whose providers could not be listed.
type Unlisted struct {
	Where string
	Err   error
}
