package policyhost

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy"
)

// maxHeader is the largest size of an answer's headers, such as an error's text.
const maxHeader = 64 << 10

// A link observes the streams that the library itself opens to the program.
type link struct{ err error } // reason why there is no connection; set within plugin.Client.Client

func (l *link) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(policy.MaxMessageBytes)),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithIdleTimeout(0), // otherwise the first question after a pause would wait for a new connection
		grpc.WithStreamInterceptor(l.stream),
	}
}

// stream refuses the library's broker stream, because it is not used here and would store
// everything that a program sends to it. The other stream carries the program's output, and is
// the first use of the connection. If that stream cannot be opened, stream returns Unavailable:
// for any other code the library assumes that the program has no such stream, and it leaves the
// connection open.
func (l *link) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !strings.HasPrefix(method, "/plugin.GRPCStdio/") {
		return nil, status.Error(codes.Unimplemented, "not used")
	}
	s, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		l.err = err
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s, nil
}
