// Polls the node while a view is open and visible.

const UNSEEN_MS = 1_500; // how often a hidden page checks whether it is visible again

export class Poll {
  /** `ask()` promises an answer. `onAnswer(answer)` and `onError(error)` return the ms until the next question. */
  constructor({ ask, onAnswer, onError }) {
    Object.assign(this, { ask, onAnswer, onError, timer: 0, turn: 0, isOver: false });
  }

  /** Asks at once. The answer to an earlier question is ignored: it describes an older state. */
  async now() {
    if (this.isOver) return;
    clearTimeout(this.timer);
    const turn = ++this.turn;
    const isOld = () => this.isOver || turn !== this.turn;
    let wait;
    try {
      const answer = await this.ask();
      if (isOld()) return;
      wait = this.onAnswer(answer);
    } catch (error) {
      if (isOld()) return;
      wait = this.onError(error);
    }
    this.later(wait);
  }

  later(wait) {
    this.timer = setTimeout(() => (document.hidden ? this.later(UNSEEN_MS) : this.now()), wait);
  }

  /** Ends polling finally: `now()` does nothing from now on, even if a change that still runs calls it. */
  end() {
    this.isOver = true;
    clearTimeout(this.timer);
  }
}
