package doctor

import (
	"context"
	"errors"
	"fmt"
)

// bucket returns whether recordings can be stored, read and deleted in their bucket.
func (l *inspection) bucket(ctx context.Context) []Finding {
	const check = "bucket"
	if l.Bucket == nil {
		return orOK(nil, check, "recordings are not stored in a bucket")
	}
	failed, err := within(ctx, func(ctx context.Context) (failed string, err error) { return l.Bucket(ctx) })
	switch {
	case err == nil:
		return orOK(nil, check, "recordings can be stored, read and deleted there")
	case errors.Is(err, context.DeadlineExceeded):
		return []Finding{{check, Warning, fmt.Sprintf("the server has not answered within %v: %v", patience, err),
			"see whether this machine reaches the server of recordings_endpoint; the recorder tries again"}}
	case failed == "delete":
		return []Finding{{check, Warning, fmt.Sprintf("recordings are stored, but old ones cannot be deleted: %v", err),
			"permit s3:DeleteObject, or let the bucket delete old objects and turn recordings_age and recordings_bytes off"}}
	}
	return []Finding{{check, Warning, fmt.Sprintf("recordings cannot be stored or read: %v", err),
		"if the server refuses the request, permit s3:ListBucket, s3:GetObject and s3:PutObject to the credentials of this user; otherwise see whether this machine reaches it; the recorder tries again"}}
}
