package pusher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// This file models the protocol of announcements: up to three pushes of one version, and
// a sync that cleans up or prunes. TestAnnouncementsModel visits every order of their
// requests. A transition is one request to the registry, and the decision that the code
// takes on the answer. A process may also be killed at any point, and an hour may pass.
//
// The model leaves out three things. A process lists all tags at once. It reads
// announcements in one order. It checks the minute rule in the same transition that
// makes the request: in the code, the request may arrive up to 59 minutes after the check.
//
// As the code does, the model's prune leaves a version that has an open announcement, and
// removes announcements by digest, on what it read within the last minute.

const (
	modelPushes = 3
	modelProcs  = modelPushes + 1
	// cleanUp is the process that is no push. Once nobody runs, a later push takes its
	// place.
	cleanUp = modelPushes
)

// set is a set of platforms, or of processes with an announcement.
type set uint8

func (s set) has(i int) bool      { return s&(1<<i) != 0 }
func (s set) with(i int) set      { return s | 1<<i }
func (s set) less(i int) set      { return s &^ (1 << i) }
func (s set) contains(o set) bool { return o&^s == 0 }

// first returns the least member.
func (s set) first() int {
	i := 0
	for !s.has(i) {
		i++
	}
	return i
}

const (
	linux  set = 1
	darwin set = 2
	both       = linux | darwin
)

// modelRole is what a process does.
type modelRole uint8

const (
	absent     modelRole = iota
	pushOfSome           // a push that has to announce itself
	pushOfAll            // a push of all platforms of its SHA256SUMS
	cleaning             // removes announcements under the rule for all
	remover              // a prune: removes the version
)

// modelStep is the next request of a process.
type modelStep uint8

const (
	stepInspect     modelStep = iota // run: reads the index
	stepAnnounce                     // tagAnnouncement, not done
	stepList                         // announcements: lists tags
	stepFetch                        // announcements: reads one of them
	stepRead                         // current: reads the index
	stepWrite                        // sendIndex
	stepMarkDone                     // tagAnnouncement, done
	stepWithdraw                     // withdraw, by a push that saw no others
	stepRemove                       // clean: deletes one announcement
	stepRemoveOwn                    // withdraw, the last request of finish
	stepRemoveIndex                  // a prune removes the version's tag
	stepEnded
)

var stepNames = [...]string{"inspects", "announces", "lists tags", "reads an announcement", "reads the index", "writes the index", "is done", "withdraws", "removes another's", "removes its own", "removes the version", ""}

// modelPhase is why a process lists and reads.
type modelPhase uint8

const (
	inPlacePhase modelPhase = iota // inPlace
	roundsPhase                    // rounds
	finishPhase                    // finish, and a clean-up
)

// modelProc is a process.
type modelProc struct {
	step  modelStep
	phase modelPhase
	// As announcements returned them:
	todo  set  // announcements that were listed, and are not read yet
	seen  set  // announcements that were read; at stepRemove, those to be removed
	same  set  // the part of seen that nobody has written anew
	known set  // the platforms that seen announces
	open  bool // an announcement of seen is open
	mine  bool // the process's own announcement was listed
	fresh bool // the process listed the tags within the last minute

	index     set  // the index as it was read; at stepWrite, the union
	announced bool // push.own is not nil
	recent    bool // the process's announcement is less than half an hour old
	wrote     bool // push.wrote
	reported  bool // the push found in the index all that it brings
	late      bool // the push began after the prune had ended
	dying     bool // the process was killed, and the registry still gets its last request
}

// modelAnnouncement is what the tag of a process's announcement names.
type modelAnnouncement struct{ present, done, old bool }

// modelState is a registry with its processes.
type modelState struct {
	index  set // platforms; none: there is no version
	anns   [modelProcs]modelAnnouncement
	procs  [modelProcs]modelProc
	hours  uint8
	kills  uint8
	pruned bool
}

// rule is a rule of the protocol.
type rule uint8

const (
	noRule        rule = iota
	announceRule       // a push of some platforms announces itself
	joinRule           // a push without an announcement joins an open one
	orderRule          // announcements are read before the index
	unionRule          // what others announced is written, too
	openRule           // nothing is removed while an announcement is open
	indexRule          // only what the index has is removed
	lastRoundRule      // one's own goes after a round that found the union in place
	lookAgainRule      // a push that saw others looks again after it is done
	withdrawRule       // a push that may have written does not withdraw
	minuteRule         // old readings count for nothing
	renewRule          // a push that takes long announces itself anew
	digestRule         // a newer announcement under the same tag is not removed
	pruneRule          // a version is not pruned while an announcement is open
)

// model is a configuration.
type model struct {
	roles   [modelProcs]modelRole
	brings  [modelProcs]set // platforms
	kills   uint8
	hours   uint8
	without rule // that is taken away
}

// next returns the state after the next request of a process.
func (m *model) next(s modelState, i int) modelState {
	p := &s.procs[i]
	dying := p.dying
	switch p.step {
	case stepInspect:
		m.inspect(&s, i)
	case stepAnnounce:
		s.tag(i, modelAnnouncement{present: true})
		p.announced, p.recent = true, true
		m.look(p, roundsPhase)
	case stepList:
		m.list(&s, i)
	case stepFetch:
		m.fetch(&s, i)
	case stepRead:
		m.read(&s, i)
	case stepWrite:
		m.write(&s, i)
	case stepMarkDone:
		s.tag(i, modelAnnouncement{present: true, done: true})
		m.look(p, finishPhase)
	case stepWithdraw:
		s.tag(i, modelAnnouncement{})
		p.announced = false
		m.look(p, finishPhase)
	case stepRemove:
		m.remove(&s, i)
	case stepRemoveOwn:
		if m.isFresh(p) {
			s.tag(i, modelAnnouncement{})
		}
		p.step = stepEnded
	case stepRemoveIndex:
		if m.isFresh(p) {
			s.index, s.pruned = 0, true
		}
		p.step = stepEnded
	}
	if dying {
		p.step = stepEnded
	}
	return s
}

// tag has the tag of a process's announcement name something else.
func (s *modelState) tag(i int, a modelAnnouncement) {
	s.anns[i] = a
	for j := range s.procs {
		s.procs[j].same = s.procs[j].same.less(i)
	}
}

func (m *model) isFresh(p *modelProc) bool { return p.fresh || m.without == minuteRule }

// inspect is the start of a push.
func (m *model) inspect(s *modelState, i int) {
	p := &s.procs[i]
	p.late = s.pruned && s.procs[cleanUp].step == stepEnded
	if s.index.contains(m.brings[i]) {
		m.look(p, inPlacePhase)
		p.index = s.index
	} else {
		m.beginRounds(p, i)
	}
}

func (m *model) beginRounds(p *modelProc, i int) {
	if m.roles[i] == pushOfSome && m.without != announceRule {
		p.step = stepAnnounce
	} else {
		m.look(p, roundsPhase)
	}
}

// look begins to read announcements, and the index.
func (m *model) look(p *modelProc, phase modelPhase) {
	p.phase, p.step = phase, stepList
	if m.without == orderRule && phase != inPlacePhase {
		p.step = stepRead
	}
}

// list lists the tags.
func (m *model) list(s *modelState, i int) {
	p := &s.procs[i]
	p.step, p.fresh, p.mine = stepFetch, true, s.anns[i].present
	p.todo, p.seen, p.same, p.known, p.open = 0, 0, 0, 0, false
	for j, a := range s.anns {
		if a.present && j != i {
			p.todo = p.todo.with(j)
		}
	}
	if p.todo == 0 {
		m.fetched(s, i)
	}
}

// fetch reads one of the announcements that were listed.
func (m *model) fetch(s *modelState, i int) {
	p := &s.procs[i]
	j := p.todo.first()
	p.todo = p.todo.less(j)
	if a := s.anns[j]; a.present {
		p.seen, p.same = p.seen.with(j), p.same.with(j)
		p.known |= m.brings[j]
		p.open = p.open || !a.done && !a.old
	}
	if p.todo == 0 {
		m.fetched(s, i)
	}
}

// fetched decides what a process does once it has read the announcements.
func (m *model) fetched(s *modelState, i int) {
	p := &s.procs[i]
	switch {
	case p.phase == finishPhase:
		m.fetchedAtLast(s, i)
	case p.phase == inPlacePhase && p.open:
		m.beginRounds(p, i)
	case p.phase == inPlacePhase && p.seen == 0:
		m.judge(p, i)
	case p.phase == roundsPhase && m.mustAnnounce(p, i):
		p.step = stepAnnounce
	case m.without == orderRule:
		m.judge(p, i)
	default:
		p.step = stepRead
	}
}

// mustAnnounce is that a push joins an open announcement, or mustRenew.
func (m *model) mustAnnounce(p *modelProc, i int) bool {
	if !p.announced {
		return p.open && m.without != announceRule && m.without != joinRule
	}
	return (!p.mine || !p.recent) && m.without != renewRule
}

// fetchedAtLast is fetched after the last round, and in a clean-up.
func (m *model) fetchedAtLast(s *modelState, i int) {
	p := &s.procs[i]
	open := p.open && m.without != openRule
	switch {
	case m.roles[i] == remover:
		if p.open && m.without != pruneRule {
			p.step = stepEnded
		} else {
			m.nextRemoval(p, i)
		}
	case open, p.seen == 0 && !p.announced:
		p.step = stepEnded
	case m.without == orderRule:
		m.choose(p, i)
	default:
		p.step = stepRead
	}
}

// read reads the index.
func (m *model) read(s *modelState, i int) {
	p := &s.procs[i]
	p.index = s.index
	switch {
	case m.without == orderRule && p.phase != inPlacePhase:
		p.step = stepList
	case p.phase == finishPhase:
		m.choose(p, i)
	default:
		m.judge(p, i)
	}
}

// judge compares the index with the union.
func (m *model) judge(p *modelProc, i int) {
	union := p.index | m.brings[i]
	if m.without != unionRule {
		union |= p.known
	}
	switch {
	case p.index == union:
		p.reported = true
		m.finish(p, i)
	case p.phase == inPlacePhase:
		m.beginRounds(p, i)
	default:
		p.index, p.step = union, stepWrite
	}
}

// write has the version's tag name the union.
func (m *model) write(s *modelState, i int) {
	p := &s.procs[i]
	if !m.isFresh(p) {
		m.look(p, roundsPhase)
		return
	}
	s.index, p.wrote = p.index, true
	m.look(p, roundsPhase)
	if m.without == lastRoundRule && p.announced && p.seen == 0 {
		p.reported, p.step = true, stepWithdraw
	}
}

// finish comes after the last round.
func (m *model) finish(p *modelProc, i int) {
	switch {
	case m.without == lookAgainRule && p.open:
		p.step = stepEnded
	case !p.announced || m.without == lookAgainRule:
		m.choose(p, i)
	case p.seen == 0:
		p.step = stepWithdraw
	default:
		p.step = stepMarkDone
	}
}

// choose chooses the announcements to be removed: what the index has.
func (m *model) choose(p *modelProc, i int) {
	if p.index == 0 { // the version is gone
		p.step = stepEnded
		return
	}
	for j := range modelProcs {
		if p.seen.has(j) && !m.mayGo(p, j) {
			p.seen = p.seen.less(j)
		}
	}
	m.nextRemoval(p, i)
}

func (m *model) mayGo(p *modelProc, i int) bool {
	return p.index.contains(m.brings[i]) || m.without == indexRule
}

// remove removes one announcement.
func (m *model) remove(s *modelState, i int) {
	p := &s.procs[i]
	if !m.isFresh(p) {
		p.step = stepEnded
		return
	}
	j := p.seen.first()
	p.seen = p.seen.less(j)
	if p.same.has(j) || m.without == digestRule {
		s.tag(j, modelAnnouncement{})
	}
	s.pruned = s.pruned || m.roles[i] == remover
	m.nextRemoval(p, i)
}

// nextRemoval chooses what a process removes next.
func (m *model) nextRemoval(p *modelProc, i int) {
	switch {
	case p.seen != 0:
		p.step = stepRemove
	case m.roles[i] == remover:
		p.step = stepRemoveIndex
	case p.announced && m.mayGo(p, i):
		p.step = stepRemoveOwn
	default:
		p.step = stepEnded
	}
}

// hasEffect reports whether a request changes the registry.
func (p *modelProc) hasEffect() bool {
	switch p.step {
	case stepAnnounce, stepWrite, stepMarkDone, stepWithdraw, stepRemove, stepRemoveOwn, stepRemoveIndex:
		return true
	}
	return false
}

// killed returns the states after a process was killed: at once, with its request
// still on its way, or by an error after which it withdraws its announcement.
func (m *model) killed(s modelState, i int) []modelState {
	p := s.procs[i]
	s.kills++
	s.procs[i].step = stepEnded
	out := []modelState{s}
	if p.announced && !p.reported && (!p.wrote || m.without == withdrawRule) {
		withdrawn := s
		withdrawn.tag(i, modelAnnouncement{})
		out = append(out, withdrawn)
	}
	if p.hasEffect() {
		p.dying = true
		s.procs[i] = p
		out = append(out, s)
	}
	return out
}

// hour lets an hour pass. What is on its way arrives before.
func (s modelState) hour() modelState {
	s.hours++
	for i := range s.anns {
		s.anns[i].old = s.anns[i].present
	}
	for i := range s.procs {
		p := &s.procs[i]
		p.fresh, p.recent, p.open = false, false, false // open is decided after the last reading
	}
	return s
}

// quiet reports whether nobody runs any more.
func (s *modelState) quiet() bool {
	for i := range s.procs {
		if s.procs[i].step != stepEnded {
			return false
		}
	}
	return true
}

// dying reports whether a request of a killed process is on its way.
func (s *modelState) dying() bool {
	for i := range s.procs {
		if s.procs[i].dying {
			return true
		}
	}
	return false
}

// reported returns the platforms that pushes reported. Of pushes that ran beside a
// prune, nothing is known.
func (m *model) reported(s *modelState) set {
	var out set
	for i, p := range s.procs {
		if p.reported && (p.late || !s.pruned) {
			out |= m.brings[i]
		}
	}
	return out
}

// violation says what is wrong in a state; "" for nothing.
func (m *model) violation(s modelState) string {
	if !s.quiet() {
		return ""
	}
	reported, there, left := m.reported(&s), s.index, false
	for i, a := range s.anns {
		if a.present {
			there |= m.brings[i]
			left = true
		}
	}
	undisturbed := s.kills == 0 && s.hours == 0 && !s.pruned
	switch {
	case !there.contains(reported):
		return "a platform that was reported is lost"
	case undisturbed && !s.index.contains(reported):
		return "a platform that was reported is not in the index"
	case undisturbed && left:
		return "an announcement is left"
	}
	for _, platform := range []set{linux, darwin} {
		if wrong := m.afterwards(s, platform, reported|platform); wrong != "" {
			return wrong
		}
	}
	return ""
}

// afterwards says what is wrong after an hour and one more push, which runs alone.
func (m *model) afterwards(s modelState, platform, want set) string {
	later := *m
	later.roles[cleanUp], later.brings[cleanUp] = pushOfSome, platform
	s = s.hour()
	for s.procs[cleanUp] = (modelProc{}); !s.quiet(); {
		s = later.next(s, cleanUp)
	}
	switch {
	case !s.index.contains(want):
		return "after one more push, a platform is not in the index"
	case s.anns != [modelProcs]modelAnnouncement{}:
		return "after one more push, an announcement is left"
	}
	return ""
}

// forget resets what no later request depends on, so that states are found to be the
// same.
func (m *model) forget(s *modelState) {
	for i := range s.procs {
		p := &s.procs[i]
		q := modelProc{step: p.step, reported: p.reported, late: p.late, dying: p.dying}
		if p.step != stepEnded {
			q.announced = p.announced
			q.recent = p.announced && p.recent && !p.reported
			q.wrote = p.wrote && !p.reported && s.kills < m.kills
		}
		switch p.step {
		case stepList:
			q.phase = p.phase
		case stepFetch:
			q.phase, q.todo, q.seen, q.same, q.open, q.fresh = p.phase, p.todo, p.seen, p.same, p.open, p.fresh
			if p.phase != finishPhase {
				q.known, q.mine = p.known, p.mine && p.announced
			}
		case stepRead:
			q.phase, q.seen, q.same, q.fresh = p.phase, p.seen, p.same, p.fresh
			if p.phase != finishPhase {
				q.known = p.known
			}
		case stepWrite:
			q.index, q.fresh = p.index, p.fresh
		case stepRemove:
			q.seen, q.same, q.fresh = p.seen, p.same, p.fresh
			if q.announced && p.index.contains(m.brings[i]) {
				q.index = p.index
			}
		case stepRemoveOwn, stepRemoveIndex:
			q.fresh = p.fresh
		}
		m.keep(&q, p)
		*p = q
	}
	if m.roles[0] == m.roles[1] && m.brings[0] == m.brings[1] && s.code(1) < s.code(0) {
		s.swap()
	}
}

// keep keeps what only the rules depend on that take a rule's place.
func (m *model) keep(q, p *modelProc) {
	switch {
	case m.without == orderRule && (p.step == stepList || p.step == stepFetch):
		q.index = p.index
	case m.without == lastRoundRule && p.step == stepWrite:
		q.seen = p.seen
	case m.without == lookAgainRule && p.step == stepRead:
		q.open = p.open
	}
}

// swap swaps the first two processes.
func (s *modelState) swap() {
	s.procs[0], s.procs[1] = s.procs[1], s.procs[0]
	s.anns[0], s.anns[1] = s.anns[1], s.anns[0]
	for i := range s.procs {
		p := &s.procs[i]
		p.todo, p.seen, p.same = p.todo.swap(), p.seen.swap(), p.same.swap()
	}
}

func (s set) swap() set { return s&^3 | s&1<<1 | s&2>>1 }

// code is a number for all of a process and its announcement.
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

// key is a hash of the state. Two of a million states have the same one once in
// 10 million runs.
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

// mix is the finalizer of MurmurHash3, with constants of SplitMix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// keySet is a set of keys, in half the memory of a map.
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

// search visits all states of a model, depth first, until one is wrong.
type search struct {
	*model
	seen  keySet
	path  []string // how the current state was reached
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

// visit reports whether the state, and all that come after it, are right.
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

// follow visits the state after an event: the request of process p, or the end of
// process i, or an hour.
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

// announcements describes the announcements for people.
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

// Parts that processes play in the cases.
var (
	two        = [modelProcs]modelRole{pushOfSome, absent, pushOfSome}
	three      = [modelProcs]modelRole{pushOfSome, pushOfSome, pushOfSome}
	twoAndAll  = [modelProcs]modelRole{pushOfSome, pushOfAll, pushOfSome}
	bringTwo   = [modelProcs]set{linux, 0, darwin}
	bringThree = [modelProcs]set{linux, linux, darwin}
	bringAll   = [modelProcs]set{linux, both, darwin}
)

// with returns roles with a process that is no push.
func with(roles [modelProcs]modelRole, other modelRole) [modelProcs]modelRole {
	roles[cleanUp] = other
	return roles
}

// modelCases are configurations by name.
var modelCases = map[string]struct {
	model
	long bool // for make test-faults
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

// modelRules are the rules, each with a case in which something goes wrong without it.
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

// TestAnnouncementsModel shows for every order of requests that no push loses what
// another one reported, and that no announcement is left in the end. It shows, too, that
// each rule of the protocol is needed for that.
func TestAnnouncementsModel(t *testing.T) {
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
				t.Errorf("nothing goes wrong without it")
			}
		})
	}
}
