package pusher

import (
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// Action is what a push, a sync or a removal does with a version.
type Action string

// The actions of a plan.
const (
	ActionPush   Action = "push"   // the version is missing
	ActionAdd    Action = "add"    // platforms of the version, or in a push the evidence, are missing
	ActionRepair Action = "repair" // the version is stored, and its evidence is missing or refused
	ActionKeep   Action = "keep"   // the version is in place
	ActionWait   Action = "wait"   // the version is too young
	ActionPrune  Action = "prune"  // no provider block requests the version
	// ActionReplace means that a push replaces stored packages or evidence. A sync never does.
	ActionReplace Action = "replace"
)

// Step is the plan for one version.
type Step struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Action   Action           `json:"action"`
	// Platforms are the platforms to push, to add, to repair, to replace or to prune. For
	// ActionKeep, they are the platforms in place.
	Platforms []provider.Platform `json:"platforms,omitempty"`
	// Size is the total size of the packages for Platforms in bytes; -1: unknown.
	Size int64 `json:"size"`
	// Until is when the wait ends; zero unless Action is ActionWait.
	Until time.Time `json:"until,omitzero"`
	// FirstSync is set if the version does not wait because this is the first sync of the
	// provider with a cooldown.
	FirstSync bool `json:"first_sync,omitempty"`
}
