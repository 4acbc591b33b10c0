// Something that changes the cluster: with the token, which is asked for if it has to be.

import { post, token } from "./api.js";
import { askedForToken } from "./dialog.js";
import { toast } from "./toast.js";

const UNAUTHORIZED = 401;

/** What the node said; null if it wasn't done, which has been told then. */
export async function change(path, body) {
  let why = "";
  for (;;) {
    if ((!token.get() || why) && !(await askedForToken(why))) return null;
    try {
      return await post(path, body);
    } catch (error) {
      if (error.status === UNAUTHORIZED) {
        token.forget();
        why = "That isn't the token of this node.";
        continue;
      }
      toast(error.message, "fault");
      return null;
    }
  }
}
