// Changes to the cluster. They need the token, which the user is asked for if it is missing or wrong.

import { post, token } from "./api.js";
import { askForToken } from "./dialog.js";
import { toast } from "./toast.js";

const UNAUTHORIZED = 401;

/** Returns the node's answer. Returns null if the change failed, or the user cancelled it; a failure is shown. */
export async function change(path, body) {
  let why = "";
  for (;;) {
    if ((!token.get() || why) && !(await askForToken(why))) return null;
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
