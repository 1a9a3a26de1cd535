// Command now prints, for each line that it reads, the time in seconds and how many nanoseconds have passed since it
// started.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	started := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().Unix(), int64(time.Since(started)))
	}
}
