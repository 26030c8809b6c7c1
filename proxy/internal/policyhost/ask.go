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
	"holdfast/shared/plain"
)

// retryRunning is the retry time that a client receives if the policy runs but gave no usable
// answer.
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

// ask puts one question to the policy within Config.Deadline. refusals lists the codes that the
// policy may answer with; such a refusal is returned as it is. If the caller's ctx has ended, ask
// returns its error. Each other failure is returned as policy_unavailable.
func ask[A any](h *Host, ctx context.Context, m method, call func(context.Context, policy.Policy) (A, error), refusals ...string) (A, error) {
	var none A
	h.counts[m].calls.Add(1)
	limit, cancel := context.WithTimeout(ctx, h.cfg.Deadline)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-limit.Done():
		if err := contextError(ctx); err != nil {
			return none, err
		}
		return none, h.failed(m, "the policy has too many unanswered questions", errBusy)
	}
	r, retryAfter := h.current()
	if r == nil {
		h.counts[m].failures.Add(1)
		return none, unavailable("the policy does not run and is being restarted", retryAfter)
	}
	stop := context.AfterFunc(r.program.ctx, cancel)
	defer stop()

	asked := time.Now()
	answer, err := call(limit, r.policy)
	var no *policy.Refusal
	switch {
	case err == nil || errors.As(err, &no) && slices.Contains(refusals, no.Code):
		r.inTime()
		h.worked(m)
		if err != nil {
			return none, no
		}
		return answer, nil
	case contextError(ctx) != nil:
		return none, contextError(ctx)
	case r.isBroken(limit, err):
		h.counts[m].failures.Add(1) // keep logs the reason
		_, retryAfter := h.current()
		return none, unavailable("the policy ended before it answered", max(retryAfter, minRetry))
	case contextError(limit) != nil:
		h.counts[m].timeouts.Add(1)
		r.tooLate(asked, h.cfg.Deadline)
		return none, h.failed(m, fmt.Sprintf("the policy did not answer within %v", h.cfg.Deadline), err)
	}
	return none, h.failed(m, "the policy gave an invalid answer", err)
}

// contextError returns ctx.Err, or DeadlineExceeded if the deadline has passed and the context's
// timer has not fired yet. The policy's program measures the same deadline, and its timer may
// fire first.
func contextError(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

var errBusy = fmt.Errorf("%d questions wait for an answer", maxCalls)

// unavailable returns the error of a question without an answer. The client reads its text, so it
// does not contain output of the program.
func unavailable(reason string, after time.Duration) error {
	return &protocol.Error{
		Code:         protocol.CodePolicyUnavailable,
		Message:      reason + ", so the request is refused: try again",
		Retryable:    true,
		RetryAfterMS: max(1, after.Milliseconds()),
	}
}

// failed counts a question without an answer and returns its error. Only the first failure of an
// episode is logged.
func (h *Host) failed(m method, reason string, err error) error {
	c := &h.counts[m]
	c.failures.Add(1)
	if c.episode.failed(time.Now()) {
		h.log.Warn().Str(logging.Kind, m.String()).Str("err", cutText(err.Error())).Msg("policy does not answer; its decisions are refusals")
	}
	return unavailable(reason, retryRunning)
}

func (h *Host) worked(m method) {
	if n, say := h.counts[m].episode.worked(); say {
		h.log.Info().Str(logging.Kind, m.String()).Uint64(logging.Count, n).Msg("policy answers again")
	}
}

// cutText limits the length of an error text that the program has chosen.
func cutText(s string) string {
	const most = 500
	if len(s) > most {
		return plain.Cut(s, most) + "…"
	}
	return s
}
