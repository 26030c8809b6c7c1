package client

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Away returns what has happened in a session since its last viewer that could type has detached,
// or since the session's start if it had none. While such a viewer is attached, Away describes
// the absence before it.
//
// Its error is session_not_found.
func (c *Client) Away(ctx context.Context, id protocol.SessionID) (*protocol.AwayInfo, error) {
	a, err := ask[*api.AwayContent](ctx, c, &api.Away{SessionID: id})
	if err != nil {
		return nil, err
	}
	return &a.AwayInfo, nil
}

// Environment returns the environment that the last viewer of a session has sent
// (AttachOptions.Env), as K=V. It is empty if no viewer has sent one. The errors are those of
// Away.
func (c *Client) Environment(ctx context.Context, id protocol.SessionID) ([]string, error) {
	e, err := ask[*api.EnvironmentContent](ctx, c, &api.Environment{SessionID: id})
	if err != nil {
		return nil, err
	}
	return e.Env, nil
}
