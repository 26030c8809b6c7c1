package logging

import "os"

func awaitRoom(*os.File, int) bool { return true }
