// Command gateway serves a directory by the protocol of Amazon S3, with the gateway of Versity. It is a module of its own, so that
// the modules of that gateway are not those of Holdfast.
//
// Usage: gateway ADDRESS DIRECTORY. Each directory in DIRECTORY is a bucket. The environment has the credentials,
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
package main

import (
	"log"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

func main() {
	address, dir := os.Args[1], os.Args[2]
	user := middlewares.RootUserConfig{Access: os.Getenv("AWS_ACCESS_KEY_ID"), Secret: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	files, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{Concurrency: 100})
	if err != nil {
		log.Fatal(err)
	}
	accounts := auth.NewIAMServiceSingle(auth.Account{Access: user.Access, Secret: user.Secret, Role: auth.RoleAdmin})
	server, err := s3api.New(files, user, "us-east-1", accounts, nil, nil, nil, nil, s3api.WithKeepAlive(), s3api.WithConcurrencyLimiter(1000, 1000))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ServeMultiPort([]string{address}))
}
