package client

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Away returns what has happened in a session since its last viewer went that could
// type, or since its start where nobody has looked. While somebody looks it is of the
// time before.
//
// Errors: session_not_found, and unsupported of an older supervisor.
func (c *Client) Away(ctx context.Context, id protocol.SessionID) (*protocol.AwayInfo, error) {
	a, err := ask[*api.AwayContent](ctx, c, &api.Away{SessionID: id}, true)
	if err != nil {
		return nil, err
	}
	return &a.AwayInfo, nil
}

// Environment returns what the last viewer of a session told of its environment
// (AttachOptions.Env), as K=V; none where no viewer has told. Errors are those of Away.
func (c *Client) Environment(ctx context.Context, id protocol.SessionID) ([]string, error) {
	e, err := ask[*api.EnvironmentContent](ctx, c, &api.Environment{SessionID: id}, true)
	if err != nil {
		return nil, err
	}
	return e.Env, nil
}
