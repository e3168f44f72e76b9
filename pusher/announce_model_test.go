package pusher

// This file models the protocol of announcements. Up to three pushes of one version run at the same time as a sync that
// cleans up or prunes. TestAnnouncementsModel visits every order of their requests. A transition is one request to the
// registry, together with the decision that the code makes after the response. A process can also be killed at any
// point, and an hour can pass. The model simplifies three things. A process lists all tags at once. It reads
// announcements in one order. It checks the age of its data in the same transition as the request that depends on the
// data. In the code, that request can arrive up to 59 minutes after the check. Like the code, the model's prune leaves
// a version with an open announcement. The prune removes announcements by digest, on the basis of what it read within
// the last minute.

const (
	modelPushes = 3
	modelProcs  = modelPushes + 1
	// cleanUp is the index of the process that is not a push. After all processes have ended, a later push reuses its
	// slot.
	cleanUp = modelPushes
)

// set is a set of platforms or of announcements. The index of a process stands for the announcement of the process.
type set uint8

func (s set) has(i int) bool      { return s&(1<<i) != 0 }
func (s set) with(i int) set      { return s | 1<<i }
func (s set) less(i int) set      { return s &^ (1 << i) }
func (s set) contains(o set) bool { return o&^s == 0 }

// first returns the smallest member of a set that is not empty.
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

// modelRole is the kind of a process.
type modelRole uint8

const (
	absent     modelRole = iota
	pushOfSome           // brings some platforms, and has to announce itself
	pushOfAll            // brings all platforms of its SHA256SUMS
	cleaning             // removes announcements by the same rules as a push
	remover              // prunes the version
)

// modelStep is the next request of a process. The comments below name the functions of package pusher that send the
// requests.
type modelStep uint8

const (
	stepInspect     modelStep = iota // run: reads the index
	stepAnnounce                     // tagAnnouncement, not done
	stepList                         // announcements: lists tags
	stepFetch                        // announcements: reads one announcement
	stepRead                         // current: reads the index
	stepWrite                        // sendIndex
	stepMarkDone                     // tagAnnouncement, done
	stepWithdraw                     // withdraw, by a push that saw no other announcements
	stepRemove                       // clean: deletes one announcement
	stepRemoveOwn                    // withdraw, the last request of finish
	stepRemoveIndex                  // a prune removes the version's tag
	stepEnded
)

var stepNames = [...]string{"inspects", "announces", "lists tags", "reads an announcement", "reads the index", "writes the index", "is done", "withdraws", "removes another's", "removes its own", "removes the version", ""}

// modelPhase is the part of the protocol that a process is in when it lists tags and reads announcements.
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
	// What the process has found out since it last listed the tags:
	todo  set  // listed announcements that were not read yet
	seen  set  // announcements that were read; at stepRemove, the announcements to remove
	same  set  // announcements in seen whose tags have not changed since they were read
	known set  // the platforms that the announcements in seen announce
	open  bool // an announcement in seen is open
	mine  bool // the process's own announcement was listed
	fresh bool // the process listed the tags within the last minute

	index     set  // the platforms of the index that was read last; at stepWrite, the union to write
	announced bool // push.own is not nil
	recent    bool // the process's announcement is less than half an hour old
	wrote     bool // push.wrote
	reported  bool // the push found its packages in the index
	late      bool // the push began after the prune had ended
	dying     bool // the process was killed, but its last request still reaches the registry
}

// modelAnnouncement is the manifest that the tag of a process's announcement names.
type modelAnnouncement struct{ present, done, old bool }

// modelState is the state of a registry and of the processes that use it.
type modelState struct {
	index  set // the platforms of the version's index; empty: there is no version
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
	joinRule           // a push without an announcement announces itself if another announcement is open
	orderRule          // announcements are read before the index
	unionRule          // a push also writes the packages of other announcements
	openRule           // nothing is removed while an announcement is open
	indexRule          // only announcements that the index contains are removed
	lastRoundRule      // a push removes its own announcement only after a round that found the union in place
	lookAgainRule      // a push that saw other announcements reads again after it marked its own as done
	withdrawRule       // a push that might have written the index does not withdraw its announcement
	minuteRule         // a push writes or removes nothing on the basis of old data
	renewRule          // a push that takes long renews its announcement
	digestRule         // a newer announcement under the same tag is not removed
	pruneRule          // a version is not pruned while an announcement is open
)

// model is a configuration of processes, and of the events that can happen to them.
type model struct {
	roles   [modelProcs]modelRole
	brings  [modelProcs]set // platforms
	kills   uint8
	hours   uint8
	without rule // the rule that processes ignore
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

// tag makes the announcement tag of process i name another manifest.
func (s *modelState) tag(i int, a modelAnnouncement) {
	s.anns[i] = a
	for j := range s.procs {
		s.procs[j].same = s.procs[j].same.less(i)
	}
}

func (m *model) isFresh(p *modelProc) bool { return p.fresh || m.without == minuteRule }

// inspect begins a push.
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

// look makes a process read the announcements and the index.
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

// fetch reads one of the listed announcements.
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

// fetched decides how a process continues once it has read the announcements.
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

// mustAnnounce reports whether a push has to announce itself because another announcement is open, or has to renew its
// own announcement.
func (m *model) mustAnnounce(p *modelProc, i int) bool {
	if !p.announced {
		return p.open && m.without != announceRule && m.without != joinRule
	}
	return (!p.mine || !p.recent) && m.without != renewRule
}

// fetchedAtLast decides how a process continues once it has read the announcements. It is for a push after its last
// round, for a clean-up and for a prune.
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

// judge compares the index with the union of the index, the push's platforms and the announced platforms.
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

// write makes the version's tag name the union.
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

// finish decides how a push continues after its last round.
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

// choose selects the announcements to remove. The index contains the platforms of these announcements.
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

// nextRemoval selects the next removal of a process.
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

// killed returns the states after a process was killed. The process can die immediately. Its last request can still
// arrive. Or the process can withdraw its announcement after an error.
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

// hour advances the time by an hour. The last requests of killed processes have arrived before then.
func (s modelState) hour() modelState {
	s.hours++
	for i := range s.anns {
		s.anns[i].old = s.anns[i].present
	}
	for i := range s.procs {
		p := &s.procs[i]
		p.fresh, p.recent, p.open = false, false, false // every announcement is old after an hour
	}
	return s
}

// quiet reports whether all processes have ended.
func (s *modelState) quiet() bool {
	for i := range s.procs {
		if s.procs[i].step != stepEnded {
			return false
		}
	}
	return true
}

// dying reports whether the last request of a killed process is still on its way.
func (s *modelState) dying() bool {
	for i := range s.procs {
		if s.procs[i].dying {
			return true
		}
	}
	return false
}

// reported returns the platforms that pushes have reported as stored. It ignores pushes
// that ran at the same time as a prune.
func (m *model) reported(s *modelState) set {
	var out set
	for i, p := range s.procs {
		if p.reported && (p.late || !s.pruned) {
			out |= m.brings[i]
		}
	}
	return out
}

// violation describes what is wrong in a state. It returns "" if nothing is wrong.
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

// afterwards describes what is wrong after an hour and one more push that runs alone.
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

// forget resets fields on which no later request depends, so that states with the same future compare as equal.
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

// keep copies fields from p to q. These fields affect the outcome only if the model runs without one of its rules.
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
