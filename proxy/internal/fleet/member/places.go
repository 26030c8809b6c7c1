package member

import (
	"fmt"
	"sync"

	"holdfast/protocol"
)

// places counts the clients that an agent connects, all of them and those of each user of a policy. Its zero value has no
// client.
type places struct {
	mu     sync.Mutex
	all    int
	byUser map[string]int // by workspace and user
}

// enter counts a client until leave is called, or tells why there is no place for it. principal is nil if the gate has no
// policy.
func (p *places) enter(principal *protocol.Principal) (leave func(), why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxClients {
		return nil, fmt.Sprintf("it has %d clients, which is the limit; try again later", p.all)
	}
	if principal == nil {
		p.all++
		return func() { p.leave("") }, ""
	}
	user := principal.Workspace + "\x00" + principal.User // is not empty
	if n := p.byUser[user]; n >= maxOfUser {
		return nil, fmt.Sprintf("this user has %d clients there, which is the limit; end some of them", n)
	}
	if p.byUser == nil {
		p.byUser = map[string]int{}
	}
	p.all++
	p.byUser[user]++
	return func() { p.leave(user) }, ""
}

func (p *places) leave(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if user == "" {
		return
	}
	if p.byUser[user]--; p.byUser[user] == 0 {
		delete(p.byUser, user)
	}
}
