package policyhost

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy"
)

// maxHeader bounds what comes beside an answer, such as an error's text.
const maxHeader = 64 << 10

// A link looks at the library's own streams to the program.
type link struct{ err error } // why there is no connection; set within plugin.Client.Client

func (l *link) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(policy.MaxMessageBytes)),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithIdleTimeout(0), // a connection that is made anew after a pause costs the first client
		grpc.WithStreamInterceptor(l.stream),
	}
}

// stream refuses the library's broker, which has no use here and would keep
// whatever a program sends to it. The other stream is the program's output, the
// first thing that goes over the connection. If that cannot be opened the
// library leaves the connection behind for any code but Unavailable, and takes
// that for a program that has no such stream.
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
