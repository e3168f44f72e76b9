package pusher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// code encodes a process and its announcement as a number.
func (s *modelState) code(i int) uint64 {
	p, a := &s.procs[i], &s.anns[i]
	out := uint64(p.step)
	for _, field := range [...]uint8{uint8(p.phase), uint8(p.todo), uint8(p.seen), uint8(p.same), uint8(p.known), uint8(p.index)} {
		out = out<<4 | uint64(field)
	}
	for _, bit := range [...]bool{p.open, p.mine, p.fresh, p.announced, p.recent, p.wrote, p.reported, p.late, p.dying, a.present, a.done, a.old} {
		out <<= 1
		if bit {
			out |= 1
		}
	}
	return out
}

// key is a hash of the state. Among a million states, two have the same hash with a probability of less than one in 10 million.
func (s *modelState) key() uint64 {
	h := uint64(s.index) | uint64(s.hours)<<4 | uint64(s.kills)<<8
	if s.pruned {
		h |= 1 << 12
	}
	for i := range s.procs {
		h = mix(h ^ s.code(i))
	}
	return h | 1<<63 // never 0
}

// mix is one step of SplitMix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// keySet is a set of keys. It uses half the memory of a map.
type keySet struct {
	slots []uint64 // 0: free
	n     int
}

// add reports whether the key is new.
func (k *keySet) add(key uint64) bool {
	if 4*k.n >= 3*len(k.slots) {
		k.grow()
	}
	mask := uint64(len(k.slots) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch k.slots[i] {
		case key:
			return false
		case 0:
			k.slots[i] = key
			k.n++
			return true
		}
	}
}

func (k *keySet) grow() {
	old := k.slots
	k.slots, k.n = make([]uint64, max(1<<16, 2*len(old))), 0
	for _, key := range old {
		if key != 0 {
			k.add(key)
		}
	}
}

// search visits all states of a model, depth first, until it finds a wrong state.
type search struct {
	*model
	seen  keySet
	path  []string // the events that led to the current state
	wrong string
}

func (m *model) search() *search {
	s := &search{model: m}
	var first modelState
	for i, r := range m.roles {
		switch r {
		case absent:
			first.procs[i].step = stepEnded
		case cleaning, remover:
			m.look(&first.procs[i], finishPhase)
		}
	}
	s.visit(first)
	return s
}

// visit visits a state and all states that can follow the state. It reports whether all of them are right.
func (s *search) visit(state modelState) bool {
	s.forget(&state)
	if !s.seen.add(state.key()) {
		return true
	}
	if s.wrong = s.violation(state); s.wrong != "" {
		return false
	}
	for i := range state.procs {
		p := &state.procs[i]
		if p.step == stepEnded {
			continue
		}
		if !s.follow(s.next(state, i), i, p) {
			return false
		}
		if state.kills == s.kills || p.dying {
			continue
		}
		for _, killed := range s.killed(state, i) {
			if !s.follow(killed, i, nil) {
				return false
			}
		}
	}
	if state.hours < s.hours && !state.quiet() && !state.dying() {
		return s.follow(state.hour(), -1, nil)
	}
	return true
}

// follow visits the state after an event. If p is not nil, the event is a request of the process p. Otherwise
// the process i was killed or, if i is negative, an hour has passed.
func (s *search) follow(state modelState, i int, p *modelProc) bool {
	if s.visit(state) {
		return true
	}
	event := "an hour passes"
	switch {
	case p != nil:
		event = fmt.Sprintf("%d: %s", i, stepNames[p.step])
	case i >= 0:
		event = fmt.Sprintf("%d is killed", i)
	}
	s.path = append(s.path, fmt.Sprintf("%-24s index %02b, announcements %s", event, state.index, state.announcements()))
	return false
}

// announcements describes the announcements in a failure message.
func (s *modelState) announcements() string {
	var out []string
	for i, a := range s.anns {
		switch {
		case a.done:
			out = append(out, fmt.Sprintf("%d done", i))
		case a.old:
			out = append(out, fmt.Sprintf("%d old", i))
		case a.present:
			out = append(out, fmt.Sprintf("%d open", i))
		}
	}
	return strings.Join(out, ", ")
}

// Roles and platforms of the processes in the cases.
var (
	two        = [modelProcs]modelRole{pushOfSome, absent, pushOfSome}
	three      = [modelProcs]modelRole{pushOfSome, pushOfSome, pushOfSome}
	twoAndAll  = [modelProcs]modelRole{pushOfSome, pushOfAll, pushOfSome}
	bringTwo   = [modelProcs]set{linux, 0, darwin}
	bringThree = [modelProcs]set{linux, linux, darwin}
	bringAll   = [modelProcs]set{linux, both, darwin}
)

// with returns a copy of roles in which the process that is not a push has the role other.
func with(roles [modelProcs]modelRole, other modelRole) [modelProcs]modelRole {
	roles[cleanUp] = other
	return roles
}

// modelCases are the configurations to search, by name.
var modelCases = map[string]struct {
	model
	long bool // only make test-faults searches this case
}{
	"two pushes":                 {model{roles: with(two, cleaning), brings: bringTwo, kills: 1, hours: 1}, false},
	"one push, and one of all":   {model{roles: [modelProcs]modelRole{pushOfSome, pushOfAll, absent, cleaning}, brings: bringAll, kills: 1, hours: 1}, false},
	"two pushes, and a prune":    {model{roles: with(two, remover), brings: bringTwo, kills: 1, hours: 1}, false},
	"three pushes":               {model{roles: with(three, cleaning), brings: bringThree, kills: 1}, false},
	"two pushes, and one of all": {model{roles: twoAndAll, brings: bringAll, kills: 1}, false},
	"three pushes, and a prune":  {model{roles: with(three, remover), brings: bringThree}, false},

	"three pushes, a kill, and an hour": {model{roles: with(three, absent), brings: bringThree, kills: 1, hours: 1}, false},

	"two pushes, one of all, and a cleaning": {model{roles: with(twoAndAll, cleaning), brings: bringAll, kills: 1}, true},
	"three pushes, a prune, and a kill":      {model{roles: with(three, remover), brings: bringThree, kills: 1}, true},
	"three pushes, and an hour":              {model{roles: with(three, cleaning), brings: bringThree, hours: 1}, true},
	"three pushes, a prune, and an hour":     {model{roles: with(three, remover), brings: bringThree, hours: 1}, true},
	"three pushes, a prune, a kill, an hour": {model{roles: with(three, remover), brings: bringThree, kills: 1, hours: 1}, true},
}

// modelRules lists the rules of the protocol. For each rule, it names a case that goes wrong if processes
// ignore the rule.
var modelRules = []struct {
	rule
	what, in string
}{
	{announceRule, "a push of some platforms announces itself", "two pushes"},
	{joinRule, "a push without an announcement joins an open one", "one push, and one of all"},
	{orderRule, "announcements are read before the index", "two pushes"},
	{unionRule, "a push writes what others announced", "two pushes"},
	{openRule, "nothing is removed while an announcement is open", "two pushes"},
	{indexRule, "only what the index has is removed", "two pushes"},
	{lastRoundRule, "a push removes its own after a round that found the union in place", "two pushes"},
	{lookAgainRule, "a push that saw others looks again after it is done", "two pushes"},
	{withdrawRule, "a push that may have written does not withdraw", "two pushes, and one of all"},
	{minuteRule, "old readings count for nothing", "two pushes"},
	{renewRule, "a push that takes long announces itself anew", "two pushes"},
	{digestRule, "a newer announcement under the same tag is not removed", "two pushes"},
	{pruneRule, "a version is not pruned while an announcement is open", "two pushes, and a prune"},
}

// TestAnnouncementsModel shows that, in every order of requests, no push loses packages that another push has
// reported, and no announcement is left in the end. It also shows that each rule of the protocol is necessary.
func TestAnnouncementsModel(t *testing.T) {
	testkit.LeaveToAll(t) // it tries very many cases in one goroutine
	for name, c := range modelCases {
		t.Run(name, func(t *testing.T) {
			if c.long && os.Getenv("OCIBRIDGE_FAULTS") != "long" {
				return
			}
			s := c.search()
			t.Logf("%d states", s.seen.n)
			if s.wrong != "" {
				slices.Reverse(s.path)
				t.Errorf("%s:\n%s", s.wrong, strings.Join(s.path, "\n"))
			}
		})
	}
	for _, r := range modelRules {
		t.Run("without "+r.what, func(t *testing.T) {
			m := modelCases[r.in].model
			m.without = r.rule
			s := m.search()
			t.Logf("%d states: %s", s.seen.n, s.wrong)
			if s.wrong == "" {
				t.Errorf("nothing goes wrong without the rule")
			}
		})
	}
}
