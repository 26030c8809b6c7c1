package policyhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// retryRunning is when to ask again a policy that runs but did not answer well.
const retryRunning = time.Second

// Authenticate implements policy.Policy.
func (h *Host) Authenticate(ctx context.Context, c policy.Credentials) (policy.Principal, error) {
	return ask(h, ctx, authenticate, func(ctx context.Context, p policy.Policy) (policy.Principal, error) {
		principal, err := p.Authenticate(ctx, c)
		if err == nil {
			err = principal.Validate()
		}
		return principal, err
	}, policy.CodeUnauthorized)
}

// ResolveTask implements policy.Policy.
func (h *Host) ResolveTask(ctx context.Context, r policy.TaskRequest) (policy.Task, error) {
	return ask(h, ctx, resolveTask, func(ctx context.Context, p policy.Policy) (policy.Task, error) {
		task, err := p.ResolveTask(ctx, r)
		if err == nil {
			err = task.Validate()
		}
		return task, err
	}, policy.CodeTaskNotFound, policy.CodeWorkspaceMismatch)
}

// Authorize implements policy.Policy.
func (h *Host) Authorize(ctx context.Context, a policy.Access) error {
	_, err := ask(h, ctx, authorize, func(ctx context.Context, p policy.Policy) (struct{}, error) {
		return struct{}{}, p.Authorize(ctx, a)
	}, policy.CodePermissionDenied)
	return err
}

// ask asks within the deadline. may are the codes of the refusals that are an
// answer; all else that is none is policy_unavailable, but for a caller who has
// given up.
func ask[A any](h *Host, ctx context.Context, m method, question func(context.Context, policy.Policy) (A, error), may ...string) (A, error) {
	var none A
	h.counts[m].calls.Add(1)
	limit, cancel := context.WithTimeout(ctx, h.cfg.Deadline)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-limit.Done():
		if err := over(ctx); err != nil {
			return none, err
		}
		return none, h.failed(m, "the policy has too many questions to answer", errBusy)
	}
	r, back := h.current()
	if r == nil {
		h.counts[m].failures.Add(1)
		return none, unavailable("the policy does not run, and is started again", back)
	}
	stop := context.AfterFunc(r.program.ctx, cancel)
	defer stop()

	answer, err := question(limit, r.policy)
	var no *policy.Refusal
	switch {
	case err == nil || errors.As(err, &no) && slices.Contains(may, no.Code):
		r.inTime()
		h.worked(m)
		if err != nil {
			return none, no
		}
		return answer, nil
	case over(ctx) != nil:
		return none, over(ctx)
	case r.broke(limit, err):
		h.counts[m].failures.Add(1) // keep logs why
		_, back := h.current()
		return none, unavailable("the policy ended before it answered", max(back, least))
	case over(limit) != nil:
		h.counts[m].timeouts.Add(1)
		r.tooLate()
		return none, h.failed(m, fmt.Sprintf("the policy did not answer within %v", h.cfg.Deadline), err)
	}
	return none, h.failed(m, "the policy gave no proper answer", err)
}

// over is ctx.Err, but does not wait for the context's timer: the program keeps
// the time, too, and its timer may be first to say that it is up.
func over(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

var errBusy = fmt.Errorf("%d questions wait for an answer", maxCalls)

// unavailable is the error of a question without an answer. Its text says
// nothing of what the program said: it is for whoever asked.
func unavailable(why string, after time.Duration) error {
	return &protocol.Error{
		Code:         protocol.CodePolicyUnavailable,
		Message:      why + ", so this is refused for now",
		Retryable:    true,
		RetryAfterMS: max(1, after.Milliseconds()),
	}
}

// failed counts a question without an answer and makes its error. Only the first
// of many is logged.
func (h *Host) failed(m method, why string, err error) error {
	c := &h.counts[m]
	c.failures.Add(1)
	if c.episode.failed(time.Now()) {
		h.log.Warn().Str(logging.Kind, m.String()).Str("err", cutText(err.Error())).Msg("policy does not answer, what it decides is refused")
	}
	return unavailable(why, retryRunning)
}

func (h *Host) worked(m method) {
	if n, say := h.counts[m].episode.worked(); say {
		h.log.Info().Str(logging.Kind, m.String()).Uint64(logging.Count, n).Msg("policy answers again")
	}
}

// cutText keeps an error that the program made up within a line.
func cutText(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
