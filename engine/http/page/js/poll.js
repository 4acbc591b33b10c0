// One question that a view asks again and again: as long as it is there, and somebody looks.

const UNSEEN_MS = 1_500; // how late it is noticed that somebody looks again

export class Poll {
  /** `ask()` promises an answer. `told(answer)` and `failed(error)` say in how many ms it is asked again. */
  constructor({ ask, told, failed }) {
    Object.assign(this, { ask, told, failed, timer: 0, turn: 0, isOver: false });
  }

  /** Asks at once. Of a question that is under way nothing is heard any more: it was asked before whatever is new. */
  async now() {
    if (this.isOver) return;
    clearTimeout(this.timer);
    const turn = ++this.turn;
    const isOld = () => this.isOver || turn !== this.turn;
    let wait;
    try {
      const answer = await this.ask();
      if (isOld()) return;
      wait = this.told(answer);
    } catch (error) {
      if (isOld()) return;
      wait = this.failed(error);
    }
    this.later(wait);
  }

  later(wait) {
    this.timer = setTimeout(() => (document.hidden ? this.later(UNSEEN_MS) : this.now()), wait);
  }

  /** For good: whoever is still busy with a change may ask for `now()` after it. */
  end() {
    this.isOver = true;
    clearTimeout(this.timer);
  }
}
